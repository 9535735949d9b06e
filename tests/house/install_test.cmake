# Installs the build tree into an empty prefix, builds the examples against that alone, and runs them.
function(run)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE status OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(NOT status EQUAL 0)
    list(JOIN ARGN " " command)
    message(FATAL_ERROR "'${command}' ended with ${status}:\n${output}")
  endif()
  set(output "${output}" PARENT_SCOPE)
endfunction()

file(REMOVE_RECURSE ${scratch})
file(MAKE_DIRECTORY ${scratch})
file(REAL_PATH ${scratch} scratch)  # as programs name what they have loaded
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

# run_example(name expected): builds examples/<name>, whose program has its name, and looks for a regular
# expression in what that prints.
function(run_example name expected)
  set(build_folder ${scratch}/build/${name})
  run(${CMAKE_COMMAND} -S ${examples}/${name} -B ${build_folder} -G ${generator}
    -D CMAKE_BUILD_TYPE=${config} -D CMAKE_CXX_COMPILER=${compiler} -D CMAKE_PREFIX_PATH=${prefix})
  run(${CMAKE_COMMAND} --build ${build_folder})
  run(${build_folder}/${name})
  if(NOT output MATCHES "${expected}")
    message(FATAL_ERROR "the example ${name} printed no '${expected}':\n${output}")
  endif()
  message(STATUS "${output}")
endfunction()
run_example(consumer "step 5: loss [0-9]+\\.[0-9]+")
file(GLOB all_examples RELATIVE ${examples} ${examples}/*)
if(NOT all_examples STREQUAL "consumer")
  message(FATAL_ERROR "examples/ holds ${all_examples}: each needs its line here")
endif()

file(GLOB programs ${prefix}/bin/*)
foreach(program ${programs})
  run(${program} --help)
endforeach()

# They find what is installed beside them.
run(${prefix}/bin/stowage plan --machine list)
if(NOT output MATCHES "h200 +NVIDIA H200")
  message(FATAL_ERROR "the installed stowage lists no machine h200:\n${output}")
endif()

# The C interface, where it was built, says of itself that it finds the backend beside it, or why there is no card.
file(GLOB_RECURSE c_allocator ${prefix}/libstowage_allocator.so ${prefix}/lib*/libstowage_allocator.so)
if(EXISTS ${prefix}/lib/stowage/libstowage_cuda.so)
  list(LENGTH c_allocator count)
  if(NOT count EQUAL 1)
    message(FATAL_ERROR "libstowage_allocator.so is installed ${count} times: '${c_allocator}'")
  endif()
  find_program(python NAMES python3 REQUIRED)
  run(${CMAKE_COMMAND} -E env STOWAGE_LIMIT=1 ${python} -c "
import ctypes
library = ctypes.CDLL('${c_allocator}')
library.stowage_malloc.restype = ctypes.c_void_p
library.stowage_last_error.restype = ctypes.c_char_p
assert library.stowage_malloc(ctypes.c_ssize_t(1), 0, None) is None
print(library.stowage_last_error().decode())
assert '${prefix}/lib/stowage/libstowage_cuda.so' in open('/proc/self/maps').read()")
  if(output MATCHES "there is no CUDA backend|of another build")
    message(FATAL_ERROR "the installed libstowage_allocator.so finds no backend:\n${output}")
  endif()
endif()

# The interposer, where it was built, is the installed one too.
if(EXISTS ${prefix}/lib/stowage/libstowage_preload.so)
  run(${prefix}/bin/stowage run --report - -- sh -c "echo $LD_PRELOAD $LD_AUDIT")
  if(NOT output MATCHES "${prefix}/lib/stowage/libstowage_preload.so ${prefix}/lib/stowage/libstowage_audit.so"
      OR NOT output MATCHES "the libraries were in 1 process")
    message(FATAL_ERROR "the installed stowage run has not put its libraries into a program:\n${output}")
  endif()
endif()
