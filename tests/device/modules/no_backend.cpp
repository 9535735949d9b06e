// A library, but no backend.
int cudart_of_nowhere();
int cudart_of_nowhere() { return 13; }
