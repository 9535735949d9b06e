# Tests of the fakes themselves.
if(NOT STOWAGE_BUILD_TESTS)
  return()
endif()
set(test_kernels ${fake_dir}/libfake_cuda_test_kernels.so)
stowage_emulate_kernels(fake_cuda_test_kernels SOURCES emulated_kernels.cu)

function(fake_cuda_own_test name)
  cmake_parse_arguments(ARG "" "" "SOURCES;LINK" ${ARGN})
  stowage_fake_cuda_test(${name} SOURCES ${ARG_SOURCES}
    LINK stowage_fake_cudart ${ARG_LINK} LABELS concurrent fake_cuda
    ENVIRONMENT STOWAGE_FAKE_CUDA_KERNELS=${test_kernels})
  set_target_properties(${name} PROPERTIES CUDA_STANDARD 20 CUDA_STANDARD_REQUIRED ON)
  add_dependencies(${name} fake_cuda_test_kernels)
endfunction()

fake_cuda_own_test(fake_cuda_runtime_test
  SOURCES capture_test.cpp stream_test.cpp memory_test.cpp virtual_memory_test.cpp cublaslt_test.cpp
  LINK stowage_fake_driver stowage_fake_cublaslt)
fake_cuda_own_test(fake_cuda_kernels_test
  SOURCES state_test.cpp kernel_table_test.cpp block_runner_test.cpp fiber_test.cpp emulated_kernels.cu
  LINK stowage_fake_driver)

add_test(NAME fake_cuda.exports_every_function_of_the_runtime
  COMMAND ${CMAKE_COMMAND} -D REAL=$<TARGET_FILE:CUDA::cudart> -D FAKE=$<TARGET_FILE:stowage_fake_cudart>
    -D NM=${CMAKE_NM} -P ${CMAKE_CURRENT_SOURCE_DIR}/cudart_symbols.cmake)
