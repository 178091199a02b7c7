// A target with the mistakes that the sanitizers and the driver must report: test_planted sees it
// fail.
#include <thread>

#include "tests/fuzz/fuzz.h"

using postbox::fuzz::Input;

namespace {

void ReadBehindTheEnd() {
  const volatile std::size_t size = 16;
  char* const bytes = new char[size]();
  const volatile char byte = bytes[size];
  static_cast<void>(byte);
  delete[] bytes;
}

void Overflow() {
  volatile int number = 0x7FFFFFFF;
  number = number + 1;
}

void Race() {
  int number = 0;
  std::thread other([&number] { ++number; });
  ++number;
  other.join();
}

}  // namespace

FUZZ(Input* input) {
  const std::string_view what = input->Line();
  FUZZ_CHECK(what != "check", "a check that fails");
  FUZZ_CHECK(what.find("needle") == std::string_view::npos, what);
  if (what == "address") ReadBehindTheEnd();
  if (what == "undefined") Overflow();
  if (what == "thread") Race();
}
