# A libcuda.so.1 under which cuDNN builds kernels for a device that is only described: it has the functions that
# cuDNN 9.19 to 9.26 looks for (cudnn_driver.txt), which succeed where a kernel is loaded and say elsewhere that there is no
# device. It stands in a folder of its own, so that no other test finds it.
set(STOWAGE_CUDNN_DRIVER_DIR ${CMAKE_CURRENT_BINARY_DIR}/cudnn_driver)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS cudnn_driver.txt)
file(STRINGS cudnn_driver.txt names)
set(text "namespace {\nconstexpr int success = 0, no_device = 100;\nint loaded = 0;  // what a handle points to\n}\n")
foreach(name ${names})
  if(name MATCHES "^cuLibrary(LoadData|GetKernel)$")
    set(function "int ${name}(void** handle) { return *handle = &loaded, success; }")
  elseif(name STREQUAL "cuLibraryUnload")
    set(function "int ${name}() { return success; }")
  elseif(name MATCHES "^cuGetError(Name|String)$")
    set(function "int ${name}(int, const char** text) { return *text = \"no device\", success; }")
  else()
    set(function "int ${name}() { return no_device; }")
  endif()
  string(APPEND text "extern \"C\" ${function}\n")
endforeach()
file(GENERATE OUTPUT ${STOWAGE_CUDNN_DRIVER_DIR}/driver.cpp CONTENT "${text}")
add_library(cudnn_driver SHARED ${STOWAGE_CUDNN_DRIVER_DIR}/driver.cpp)
set_target_properties(cudnn_driver PROPERTIES
  OUTPUT_NAME cuda VERSION 1 SOVERSION 1 LIBRARY_OUTPUT_DIRECTORY ${STOWAGE_CUDNN_DRIVER_DIR})
