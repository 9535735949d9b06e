// A module that needs a library the loader cannot find.
int cudart_of_nowhere();
extern "C" int stowage_backend_module() { return cudart_of_nowhere(); }
