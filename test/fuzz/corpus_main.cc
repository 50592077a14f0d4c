// Runs a fuzz target without libFuzzer: every file of the corpus folder named on the command line,
// then mutations of them with a fixed seed, so that a run is the same every time and on every
// compiler. Usage: corpus_<name> FOLDER [MUTATIONS].

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace {

using Input = std::vector<std::uint8_t>;
using Random = std::mt19937;  // its numbers are fixed by the standard; the distributions' are not,
                              // so none is used

constexpr std::size_t kMaxInput = 1 << 16;
constexpr int kDefaultMutations = 5000;

std::size_t below(Random& random, std::size_t bound) { return bound == 0 ? 0 : random() % bound; }

std::vector<Input> read_corpus(const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> paths;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.is_regular_file()) paths.push_back(entry.path());
  }
  std::ranges::sort(paths);
  std::vector<Input> inputs;
  for (const auto& path : paths) {
    std::ifstream file(path, std::ios::binary);
    inputs.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
  }
  return inputs;
}

void mutate_once(Input& input, const std::vector<Input>& corpus, Random& random) {
  static constexpr std::uint8_t kInteresting[] = {0, 1, 0x7f, 0x80, 0xff, '\r', '\n', ' ', ':', ',', '-', '"'};
  const auto at = input.begin() + static_cast<std::ptrdiff_t>(below(random, input.size() + 1));
  const std::size_t index = below(random, input.size());
  switch (random() % 7) {
    case 0:  // flip a bit
      if (!input.empty()) input[index] = static_cast<std::uint8_t>(input[index] ^ (1u << (random() % 8)));
      break;
    case 1:  // set a byte
      if (!input.empty()) input[index] = kInteresting[below(random, std::size(kInteresting))];
      break;
    case 2:  // insert a byte
      input.insert(at, kInteresting[below(random, std::size(kInteresting))]);
      break;
    case 3:  // cut the end off
      input.resize(index);
      break;
    case 4: {  // remove a part
      const std::size_t count = std::min(below(random, 16) + 1, input.size() - index);
      const auto from = input.begin() + static_cast<std::ptrdiff_t>(index);
      input.erase(from, from + static_cast<std::ptrdiff_t>(count));
      break;
    }
    case 5: {  // repeat a part
      const Input copy(input.begin() + static_cast<std::ptrdiff_t>(index),
                       input.begin() + static_cast<std::ptrdiff_t>(std::min(index + 32, input.size())));
      input.insert(at, copy.begin(), copy.end());
      break;
    }
    default: {  // continue with the tail of another input
      const Input& other = corpus[below(random, corpus.size())];
      input.resize(index);
      input.insert(input.end(), other.begin() + static_cast<std::ptrdiff_t>(std::min(index, other.size())),
                   other.end());
    }
  }
  if (input.size() > kMaxInput) input.resize(kMaxInput);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2 || !std::filesystem::is_directory(argv[1])) {
    std::fprintf(stderr, "usage: %s CORPUS_FOLDER [MUTATIONS]\n", argv[0]);
    return 2;
  }
  std::vector<Input> corpus = read_corpus(argv[1]);
  if (corpus.empty()) {
    std::fprintf(stderr, "%s holds no input\n", argv[1]);
    return 1;
  }
  for (const Input& input : corpus) LLVMFuzzerTestOneInput(input.data(), input.size());
  LLVMFuzzerTestOneInput(nullptr, 0);

  const int mutations = argc > 2 ? std::atoi(argv[2]) : kDefaultMutations;
  Random random(20240607);
  for (int i = 0; i < mutations; ++i) {
    Input input = corpus[below(random, corpus.size())];
    for (std::size_t steps = 1 + below(random, 4); steps > 0; --steps) mutate_once(input, corpus, random);
    LLVMFuzzerTestOneInput(input.data(), input.size());
  }
  // A target that finds a bug aborts, so whoever comes here has passed.
  std::printf("%zu passed, 0 failed, 0 skipped\n",
              corpus.size() + 1 + static_cast<std::size_t>(std::max(mutations, 0)));
  return 0;
}
