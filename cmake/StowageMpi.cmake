# Whether communicators over MPI are built. Sets STOWAGE_WITH_MPI. Not under a sanitizer: Open MPI leaks and has races by
# its own design, and the sanitizers report them as ours.
set(STOWAGE_MPI "AUTO" CACHE STRING "Build communicators over MPI: AUTO (where it is found, without sanitizers), ON or OFF")
set_property(CACHE STOWAGE_MPI PROPERTY STRINGS AUTO ON OFF)

set(STOWAGE_WITH_MPI OFF)
if(STOWAGE_MPI STREQUAL "ON" OR (STOWAGE_MPI STREQUAL "AUTO" AND NOT STOWAGE_SANITIZER))
  set(MPI_CXX_SKIP_MPICXX ON)
  find_package(MPI QUIET COMPONENTS CXX)
  set(STOWAGE_WITH_MPI ${MPI_CXX_FOUND})
  if(NOT STOWAGE_WITH_MPI AND STOWAGE_MPI STREQUAL "ON")
    message(FATAL_ERROR "STOWAGE_MPI=ON, but there is no MPI: install libopenmpi-dev, or configure with STOWAGE_MPI=OFF")
  endif()
endif()
if(STOWAGE_WITH_MPI)
  message(STATUS "MPI: ${MPI_CXX_LIBRARIES}")
else()
  message(STATUS "MPI: not built (STOWAGE_MPI=${STOWAGE_MPI})")
endif()
