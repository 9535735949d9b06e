// A library, but no module.
int no_mpi_module();
int no_mpi_module() { return 13; }
