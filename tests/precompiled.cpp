// Nothing of its own: what tests/precompiled.h is compiled for.
