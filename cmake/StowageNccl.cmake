# Whether communicators over NCCL are built: with the CUDA backend, where NCCL (2.19 or newer) is found. Sets
# STOWAGE_WITH_NCCL.
set(STOWAGE_WITH_NCCL OFF)
if(STOWAGE_WITH_CUDA)
  find_path(STOWAGE_NCCL_INCLUDE_DIR nccl.h HINTS ${CUDAToolkit_INCLUDE_DIRS} DOC "Folder of nccl.h")
  find_library(STOWAGE_NCCL_LIBRARY nccl HINTS ${CUDAToolkit_LIBRARY_DIR} ${CUDAToolkit_LIBRARY_ROOT}/lib DOC "libnccl")
  if(STOWAGE_NCCL_INCLUDE_DIR AND STOWAGE_NCCL_LIBRARY)
    set(STOWAGE_WITH_NCCL ON)
    message(STATUS "NCCL: ${STOWAGE_NCCL_LIBRARY}")
  else()
    message(STATUS "NCCL: not built, since it is not found")
  endif()
endif()
