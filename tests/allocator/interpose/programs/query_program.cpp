// Asks the driver for entry points, one "name version flags" per line of stdin, as the CUDA runtime does, and
// prints what it answers: result, status, and the symbol and the library that the function is.
#include <cuda.h>
#include <dlfcn.h>

#include <cstring>
#include <iostream>
#include <string>

int main() {
  void* const driver = dlopen("libcuda.so.1", RTLD_NOW);
  const auto ask = reinterpret_cast<decltype(&cuGetProcAddress_v2)>(dlsym(driver, "cuGetProcAddress_v2"));
  std::string name;
  int version = 0;
  cuuint64_t flags = 0;
  while (std::cin >> name >> version >> flags) {
    void* function = nullptr;
    CUdriverProcAddressQueryResult status{};
    const CUresult result = ask(name.c_str(), &function, version, flags, &status);
    Dl_info info{};
    const bool known = function != nullptr && dladdr(function, &info) != 0 && info.dli_sname != nullptr;
    const char* const slash = known ? std::strrchr(info.dli_fname, '/') : nullptr;
    std::cout << name << ' ' << version << ' ' << flags << ' ' << result << ' ' << status << ' '
              << (known ? info.dli_sname : "-") << ' ' << (slash != nullptr ? slash + 1 : "-") << '\n';
  }
  return 0;
}
