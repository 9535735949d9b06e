# No program needs a library of CUDA to start; the module needs neither the driver nor cuDNN.
#   cmake -D READELF=… -D "PROGRAMS=a;b" -D MODULE=c -P needed_libraries_test.cmake
function(refuse file pattern)
  execute_process(COMMAND ${READELF} -d ${file} OUTPUT_VARIABLE entries COMMAND_ERROR_IS_FATAL ANY)
  if(NOT entries MATCHES "NEEDED")
    message(FATAL_ERROR "${file}: no dynamic entries were read")
  endif()
  if(entries MATCHES "NEEDED[^\n]*(${pattern})[^\n]*")
    message(FATAL_ERROR "${file} is linked to CUDA: ${CMAKE_MATCH_0}")
  endif()
endfunction()

foreach(program ${PROGRAMS})
  refuse(${program} "libcu|libnv")
endforeach()
refuse(${MODULE} "libcuda\\.so|libcudnn|libnv")
