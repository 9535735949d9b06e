# Two more components, which an ordinary install leaves out:
#   cmake --install BUILD --prefix P                           the package
#   cmake --install BUILD --prefix P --component relocatable   shared libraries that its programs need, beside them,
#                                                              so that P runs on machines that lack them
#   cmake --install BUILD --prefix P --component checks        gpu_check and what it runs, under P/checks
# bench/gpu_check/make_tree does all three and packs the result. Libraries of CUDA, MPI and glibc always come from the machine.
set(excluded_libraries
  "^ld-linux" "^lib(c|m|dl|rt|pthread|resolv|util)[.-]"
  "^lib(mpi|open-rte|open-pal)[.-]" "^lib(cuda|cudart|cublas|cublasLt|cudnn|cufft|cufile|cupti|curand|cusolver|cusparse|nccl|nv).*")

# Their search path must hold for the libraries beside them too, which have none of their own: only a DT_RPATH does.
function(stowage_relocatable)
  foreach(program ${ARGN})
    target_link_options(${program} PRIVATE -Wl,--disable-new-dtags)
  endforeach()
endfunction()

if(programs)
  stowage_relocatable(${programs})
  install(RUNTIME_DEPENDENCY_SET stowage_dependencies
    PRE_EXCLUDE_REGEXES ${excluded_libraries}
    LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT relocatable EXCLUDE_FROM_ALL)
endif()

if(TARGET train_shape)
  set(checks checks)
  set(gpu_tests)
  set(listed)
  foreach(test cuda_device_gpu_test cuda_kernels_test nn_cuda_test cuda_engine_test cuda_ranks_test nccl_communicator_gpu_test)
    if(TARGET ${test})
      list(APPEND gpu_tests ${test})
      list(APPEND listed "{\"name\": \"${test}\", \"path\": \"${test}\", \"labels\": [\"gpu\"]}")
    endif()
  endforeach()
  if(TARGET cuda_kernels_test)  # attention without cuDNN
    list(APPEND listed "{\"name\": \"cuda_kernels_test own attention\", \"path\": \"cuda_kernels_test\", \"labels\": [\"gpu\"], \
\"arguments\": [\"--gtest_filter=CudaAttention.*\"], \"environment\": {\"STOWAGE_ATTENTION\": \"own\"}}")
  endif()
  set(timed train_shape)
  if(TARGET op_times)
    list(APPEND timed op_times)
  endif()
  stowage_relocatable(${timed})
  if(gpu_tests)
    set_target_properties(${gpu_tests} PROPERTIES EXCLUDE_FROM_ALL OFF)
  endif()
  set_target_properties(${timed} ${gpu_tests} PROPERTIES INSTALL_RPATH "$ORIGIN/../${CMAKE_INSTALL_LIBDIR}")
  install(TARGETS ${timed} ${gpu_tests} RUNTIME_DEPENDENCY_SET stowage_check_dependencies
    RUNTIME DESTINATION ${checks} COMPONENT checks EXCLUDE_FROM_ALL)
  install(RUNTIME_DEPENDENCY_SET stowage_check_dependencies
    PRE_EXCLUDE_REGEXES ${excluded_libraries}
    LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT checks EXCLUDE_FROM_ALL)
  install(PROGRAMS ${PROJECT_SOURCE_DIR}/bench/gpu_check/gpu_check.py
    DESTINATION ${checks} COMPONENT checks EXCLUDE_FROM_ALL)
  file(GLOB scripts CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/bench/gpu_check/*.py)
  list(REMOVE_ITEM scripts ${PROJECT_SOURCE_DIR}/bench/gpu_check/gpu_check.py)
  install(FILES ${scripts} DESTINATION ${checks} COMPONENT checks EXCLUDE_FROM_ALL)
  foreach(folder gpu_check/pytorch contest)  # PyTorch programs, and other systems on the same models
    if(IS_DIRECTORY ${PROJECT_SOURCE_DIR}/bench/${folder})
      get_filename_component(name ${folder} NAME)
      install(DIRECTORY ${PROJECT_SOURCE_DIR}/bench/${folder}/ DESTINATION ${checks}/${name}
        COMPONENT checks EXCLUDE_FROM_ALL FILES_MATCHING PATTERN "*.py" PATTERN "*.whl" PATTERN "__pycache__" EXCLUDE)
    endif()
  endforeach()

  list(JOIN listed ",\n " listed)
  file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/checks/tests.json CONTENT "[${listed}]\n")
  install(FILES ${PROJECT_BINARY_DIR}/checks/tests.json DESTINATION ${checks} COMPONENT checks EXCLUDE_FROM_ALL)
  # What was built, as far as git knows.
  install(CODE "
    execute_process(COMMAND git -C \"${PROJECT_SOURCE_DIR}\" describe --always --abbrev=12 --dirty
      OUTPUT_VARIABLE commit OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
    if(commit)
      file(WRITE \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${checks}/commit\" \"\${commit}\\n\")
    endif()" COMPONENT checks EXCLUDE_FROM_ALL)
endif()
