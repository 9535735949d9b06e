// A module that needs a library the loader cannot find.
int no_mpi_module();
extern "C" int stowage_mpi_module() { return no_mpi_module(); }
