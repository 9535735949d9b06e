# Installs the build tree into an empty prefix, builds examples/consumer against that alone, and runs it.
function(run)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE status OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(NOT status EQUAL 0)
    list(JOIN ARGN " " command)
    message(FATAL_ERROR "'${command}' ended with ${status}:\n${output}")
  endif()
  set(output "${output}" PARENT_SCOPE)
endfunction()

file(REMOVE_RECURSE ${scratch})
set(prefix ${scratch}/moved)
run(${CMAKE_COMMAND} --install ${build} --prefix ${scratch}/prefix)
file(RENAME ${scratch}/prefix ${prefix})  # the installed tree may be moved

file(GLOB_RECURSE headers RELATIVE ${prefix}/include ${prefix}/include/*)
foreach(header ${headers})
  if(NOT header MATCHES "^stowage/[a-z_]+\\.h$")
    message(FATAL_ERROR "${header} is installed, but only the public headers in include/stowage may be")
  endif()
endforeach()

file(GLOB_RECURSE exported ${prefix}/lib*/cmake/stowage/*.cmake)
foreach(file ${exported})
  file(READ ${file} text)
  string(FIND "${text}" "${build}" found)
  if(NOT found EQUAL -1)
    message(FATAL_ERROR "${file} names the build folder ${build}")
  endif()
endforeach()

run(${CMAKE_COMMAND} -S ${example} -B ${scratch}/build -G ${generator}
  -D CMAKE_BUILD_TYPE=${config} -D CMAKE_CXX_COMPILER=${compiler} -D CMAKE_PREFIX_PATH=${prefix})
run(${CMAKE_COMMAND} --build ${scratch}/build)
run(${scratch}/build/consumer)
if(NOT output MATCHES "step 5: loss [0-9]+\\.[0-9]+")
  message(FATAL_ERROR "the consumer printed no loss of step 5:\n${output}")
endif()
message(STATUS "${output}")

file(GLOB programs ${prefix}/bin/*)
foreach(program ${programs})
  run(${program} --help)
endforeach()

# They find what is installed beside them.
run(${prefix}/bin/stowage plan --machine list)
if(NOT output MATCHES "h200 +NVIDIA H200")
  message(FATAL_ERROR "the installed stowage lists no machine h200:\n${output}")
endif()
