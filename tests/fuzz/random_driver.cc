// main() of a fuzz target without libFuzzer: random inputs, and those of the corpus with random
// changes.
//
//   fuzz_NAME CORPUS [--seed N] [--runs N] [--seconds S]
//   fuzz_NAME CORPUS --input LINE
//
// An input is made of its seed and the corpus alone; the inputs of a run have successive seeds.
// When a run fails, the seed and the input are printed: `--seed N --runs 1` runs that input again,
// and `--input LINE` one that is written as in a corpus.
#include <unistd.h>

#include <array>
#include <chrono>
#include <csignal>
#include <fstream>
#include <optional>
#include <random>
#include <vector>

#include "tests/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);
// Of the sanitizers' run time, if there is one.
extern "C" __attribute__((weak)) void __sanitizer_set_death_callback(void (*callback)());
// UBSan asks for it. It has a run time of its own, which does not know that callback.
extern "C" __attribute__((visibility("default"))) const char* __ubsan_default_options() {
  return "abort_on_error=1:print_stacktrace=1";
}

namespace postbox::fuzz {
namespace {

constexpr std::size_t kLongest = 4096;
constexpr unsigned kSecondsForInput = 60;

struct Current {
  std::string input;
  std::optional<std::uint64_t> seed;  // of a random input
  bool told = false;
};
Current& current = *new Current;

void Tell() {
  if (current.told) return;
  current.told = true;
  if (current.seed) {
    std::fprintf(stderr, "seed %llu\n", static_cast<unsigned long long>(*current.seed));
  }
  std::fprintf(stderr, "input %s\n", Escaped(current.input).c_str());
}

// The process ends with it, so it may allocate memory although a signal handler must not.
void OnSignal(int signal) {
  std::signal(signal, SIG_DFL);
  if (signal == SIGALRM) {
    std::fprintf(stderr, "an input takes more than %u seconds\n", kSecondsForInput);
  }
  Tell();
  std::raise(signal);
}

int HexDigit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

std::string Unescaped(std::string_view line) {
  std::string bytes;
  for (std::size_t at = 0; at < line.size(); ++at) {
    const std::string_view rest = line.substr(at);
    if (rest.starts_with("\\n")) {
      bytes += '\n';
      ++at;
    } else if (rest.starts_with("\\\\")) {
      bytes += '\\';
      ++at;
    } else if (rest.starts_with("\\x") && rest.size() >= 4 && HexDigit(rest[2]) >= 0 &&
               HexDigit(rest[3]) >= 0) {
      bytes += static_cast<char>(HexDigit(rest[2]) * 16 + HexDigit(rest[3]));
      at += 3;
    } else {
      bytes += line[at];
    }
  }
  return bytes;
}

std::vector<std::string> ReadCorpus(const char* path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    std::fprintf(stderr, "%s cannot be read\n", path);
    std::exit(2);
  }
  std::vector<std::string> corpus;
  for (std::string line; std::getline(file, line);) {
    if (!line.empty() && line.front() != '#') corpus.push_back(Unescaped(line));
  }
  return corpus;
}

class Generator {
 public:
  Generator(const std::vector<std::string>& corpus, std::uint64_t seed)
      : corpus_(corpus), random_(seed) {}

  std::string Next() {
    std::string input = corpus_.empty() || Below(16) == 0 ? Bytes(Below(64)) : AnyOf(corpus_);
    for (std::size_t left = Below(8); left > 0; --left) Change(&input);
    if (input.size() > kLongest) input.resize(kLongest);
    return input;
  }

 private:
  // Parts that are special in one format or another.
  static const std::vector<std::string>& Tokens() {
    static const auto& tokens =
        *new std::vector<std::string>{"\n",
                                      std::string(1, '\0'),
                                      "\xff",
                                      "\xC3\xA9",
                                      "\xF0\x9F\x90\x98",
                                      "\xED\xA0\x80",
                                      "\xC0\x80",
                                      "\xE2\x82",
                                      "9223372036854775807",
                                      "-9223372036854775808",
                                      "9223372036854775808",
                                      "18446744073709551615",
                                      "0",
                                      "-1",
                                      "1e400",
                                      "nan",
                                      "inf",
                                      "0.5",
                                      "{",
                                      "}",
                                      "[",
                                      "]",
                                      "[[[[[[[[",
                                      "\"",
                                      "\\u0000",
                                      "\\ud800",
                                      "null",
                                      "true",
                                      ":",
                                      ",",
                                      "/",
                                      "..",
                                      "=",
                                      "%",
                                      "projects/",
                                      "goog",
                                      "event_id",
                                      "version",
                                      "+23:59",
                                      "-00:00",
                                      "2024-02-29",
                                      "T",
                                      "Z",
                                      "0000",
                                      "9999-12-31T23:59:60Z",
                                      "\x0A",
                                      "\x12",
                                      "\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01",
                                      "\xff\xff\xff\xff\x07",
                                      std::string(300, 'a')};
    return tokens;
  }

  std::size_t Below(std::size_t bound) { return bound == 0 ? 0 : random_() % bound; }
  const std::string& AnyOf(const std::vector<std::string>& texts) {
    return texts[Below(texts.size())];
  }
  std::string Bytes(std::size_t count) {
    std::string bytes(count, '\0');
    for (char& byte : bytes) byte = static_cast<char>(Below(256));
    return bytes;
  }

  void Change(std::string* input) {
    const std::size_t at = Below(input->size() + 1);
    const std::size_t length = Below(std::min<std::size_t>(input->size() - at, 16) + 1);
    switch (Below(8)) {
      case 0:  // another bit
        if (at < input->size()) (*input)[at] = static_cast<char>((*input)[at] ^ 1 << Below(8));
        break;
      case 1:
        input->insert(at, Bytes(1 + Below(4)));
        break;
      case 2:
        input->erase(at, length);
        break;
      case 3:  // a part twice
        input->insert(at, input->substr(at, length));
        break;
      case 4:
        input->replace(at, length, AnyOf(Tokens()));
        break;
      case 5:
        input->insert(at, AnyOf(Tokens()));
        break;
      case 6:  // the end of another one
        if (!corpus_.empty()) {
          const std::string& other = AnyOf(corpus_);
          input->replace(at, std::string::npos, other.substr(Below(other.size() + 1)));
        }
        break;
      default:
        if (at < input->size()) (*input)[at] = static_cast<char>(Below(256));
        break;
    }
  }

  const std::vector<std::string>& corpus_;
  std::mt19937_64 random_;
};

void Run(std::string input, std::optional<std::uint64_t> seed) {
  current.input = std::move(input);
  current.seed = seed;
  alarm(kSecondsForInput);
  LLVMFuzzerTestOneInput(reinterpret_cast<const std::uint8_t*>(current.input.data()),
                         current.input.size());
}

struct Options {
  const char* corpus = nullptr;
  std::optional<std::uint64_t> seed;
  std::optional<std::uint64_t> runs;
  int seconds = 0;
  std::optional<std::string> input;
};

Options ReadOptions(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string_view name = argv[i];
    const char* value = i + 1 < argc ? argv[i + 1] : nullptr;
    if (!name.starts_with("--") && options.corpus == nullptr) {
      options.corpus = argv[i];
      continue;
    }
    if (value == nullptr) break;
    if (name == "--seed") options.seed = std::strtoull(value, nullptr, 10);
    if (name == "--runs") options.runs = std::strtoull(value, nullptr, 10);
    if (name == "--seconds") options.seconds = std::atoi(value);
    if (name == "--input") options.input = Unescaped(value);
    ++i;
  }
  if (options.corpus == nullptr) {
    std::fprintf(stderr, "usage: %s CORPUS [--seed N] [--runs N] [--seconds S] [--input LINE]\n",
                 argv[0]);
    std::exit(2);
  }
  return options;
}

int Main(int argc, char** argv) {
  const Options options = ReadOptions(argc, argv);
  for (const int signal : {SIGABRT, SIGALRM}) std::signal(signal, OnSignal);
  if (__sanitizer_set_death_callback != nullptr) {
    __sanitizer_set_death_callback(Tell);
  } else {
    for (const int signal : {SIGSEGV, SIGBUS, SIGFPE, SIGILL}) std::signal(signal, OnSignal);
  }
  const std::vector<std::string> corpus = ReadCorpus(options.corpus);
  if (options.input) {
    Run(*options.input, std::nullopt);
    std::printf("the input passes\n");
    return 0;
  }
  const std::uint64_t first = options.seed ? *options.seed : std::random_device()();
  if (options.runs != 1) {
    for (const std::string& input : corpus) Run(input, std::nullopt);
  }
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(options.seconds);
  const std::uint64_t at_least = options.runs ? *options.runs : options.seconds > 0 ? 0 : 10'000;
  std::uint64_t done = 0;
  while (done < at_least || (options.seconds > 0 && std::chrono::steady_clock::now() < end)) {
    Run(Generator(corpus, first + done).Next(), first + done);
    ++done;
  }
  std::printf("%zu inputs of the corpus and %llu random ones from seed %llu pass\n", corpus.size(),
              static_cast<unsigned long long>(done), static_cast<unsigned long long>(first));
  return 0;
}

}  // namespace
}  // namespace postbox::fuzz

int main(int argc, char** argv) { return postbox::fuzz::Main(argc, argv); }
