// own_hosts.so: gives a program the host names of a test. Preloaded into it (LD_PRELOAD), it makes
// the resolver of gRPC (c-ares) read the files `hosts` and `resolv.conf` in the directory
// $POSTBOX_OWN_HOSTS instead of those in /etc. Never installed.
#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

namespace {

using Open = FILE* (*)(const char*, const char*);

FILE* OpenOwn(const char* name, const char* path, const char* mode) {
  const auto open = reinterpret_cast<Open>(dlsym(RTLD_NEXT, name));
  const char* directory = std::getenv("POSTBOX_OWN_HOSTS");
  const bool own = directory != nullptr && (std::strcmp(path, "/etc/hosts") == 0 ||
                                            std::strcmp(path, "/etc/resolv.conf") == 0);
  return own ? open((directory + std::string(path + std::strlen("/etc"))).c_str(), mode)
             : open(path, mode);
}

}  // namespace

extern "C" {
__attribute__((visibility("default"))) FILE* fopen(const char* path, const char* mode) {
  return OpenOwn("fopen", path, mode);
}
__attribute__((visibility("default"))) FILE* fopen64(const char* path, const char* mode) {
  return OpenOwn("fopen64", path, mode);
}
}
