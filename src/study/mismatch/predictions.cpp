// Predictions in safetensors files: logits, log-probabilities, or log-probabilities of tokens.
#include <algorithm>
#include <array>
#include <cstring>

#include "error.h"
#include "io/tensor_files/safetensors.h"
#include "io/text.h"
#include "study/mismatch/mismatch.h"

namespace ada::study {
namespace {

// Names of predictions of all classes, along the last axis. They are normalized, so that logits and
// log-probabilities are the same to it.
constexpr std::array<const char*, 4> kOfClasses = {"logits", "outputs", "logprobs",
                                                   "log_probabilities"};
constexpr char kOfTokens[] = "token_logprobs";
constexpr std::array<const char*, 3> kTargets = {"tokens", "targets", "labels"};

struct Predictions {
  std::string path, name;
  std::vector<std::int64_t> shape;
  std::vector<float> values;
  bool of_tokens = false;
};

Predictions ReadSide(const std::string& path) {
  const SafetensorsFile file = SafetensorsFile::Open(path);
  Predictions read;
  read.path = path;
  for (const char* name : kOfClasses)
    if (read.name.empty() && file.Find(name) != nullptr) read.name = name;
  read.of_tokens = read.name.empty();
  if (read.of_tokens && file.Find(kOfTokens) != nullptr) read.name = kOfTokens;
  if (read.name.empty())
    throw DataError(path +
                    ": no tensor logits, outputs, logprobs or log_probabilities "
                    "([samples, classes] or [samples, positions, classes]), and no token_logprobs "
                    "([samples] or [samples, positions])");
  read.shape = file.Find(read.name)->shape;
  const std::size_t axes = read.shape.size();
  const std::size_t least = read.of_tokens ? 1 : 2;
  if (axes < least || axes > least + 1)
    throw DataError(path + ": " + read.name + " has " + std::to_string(axes) +
                    " axes; expected samples" + (read.of_tokens ? "" : ", classes") +
                    ", with positions or without");
  read.values = file.ReadF32(read.name);
  return read;
}

// The targets that either file names: whole numbers, one a position.
std::vector<std::int64_t> ReadTargets(const std::string& path, std::size_t positions,
                                      std::int64_t classes) {
  const SafetensorsFile file = SafetensorsFile::Open(path);
  for (const char* name : kTargets) {
    const TensorEntry* entry = file.Find(name);
    if (entry == nullptr) continue;
    if (entry->dtype != DType::kI64 && entry->dtype != DType::kI32)
      throw DataError(path + ": " + name + " is " + entry->dtype_text() + "; expected I32 or I64");
    if (static_cast<std::size_t>(entry->numel()) != positions)
      throw DataError(path + ": " + name + " has " + std::to_string(entry->numel()) +
                      " values; expected " + std::to_string(positions) + ", one a position");
    const std::vector<std::byte> bytes = file.Bytes(name);
    std::vector<std::int64_t> targets(positions);
    for (std::size_t i = 0; i < positions; ++i) {
      if (entry->dtype == DType::kI64) {
        std::memcpy(&targets[i], bytes.data() + 8 * i, 8);
      } else {
        std::int32_t one = 0;
        std::memcpy(&one, bytes.data() + 4 * i, 4);
        targets[i] = one;
      }
      if (targets[i] >= classes)
        throw DataError(path + ": " + name + " has " + std::to_string(targets[i]) +
                        "; expected less than the " + std::to_string(classes) +
                        " classes, or below 0 for none");
    }
    return targets;
  }
  return {};
}

void RequireSame(const Predictions& a, const Predictions& b) {
  if (a.of_tokens == b.of_tokens && a.shape == b.shape) return;
  throw DataError(b.path + ": " + b.name + " is " + DimsText(b.shape) + ", and " + a.name + " of " +
                  a.path + " is " + DimsText(a.shape) + "; expected the same shape");
}

std::vector<MismatchPosition> CompareAll(const Predictions& a, const Predictions& b,
                                         const std::vector<std::int64_t>& targets) {
  const bool has_positions = a.shape.size() == (a.of_tokens ? 2u : 3u);
  const auto classes = static_cast<std::size_t>(a.of_tokens ? 1 : a.shape.back());
  const auto per_sample = static_cast<std::size_t>(has_positions ? a.shape[1] : 1);
  std::vector<MismatchPosition> positions;
  for (std::size_t i = 0; classes > 0 && (i + 1) * classes <= a.values.size(); ++i) {
    const auto row = [&](const Predictions& of) {
      return std::span<const float>(of.values).subspan(i * classes, classes);
    };
    for (const Predictions* of : {&a, &b})
      for (const float value : row(*of))
        if (std::isnan(value) || (std::isinf(value) && (of->of_tokens || value > 0)))
          throw DataError(of->path + ": " + of->name + " at sample " +
                          std::to_string(i / per_sample) + ", position " +
                          std::to_string(i % per_sample) + " is not finite");
    MismatchPosition one =
        a.of_tokens ? CompareTokens(a.values[i], b.values[i])
                    : Compare(row(a), row(b), targets.empty() ? -1 : targets[i], targets.empty());
    one.sample = static_cast<std::int64_t>(i / per_sample);
    one.position = static_cast<std::int64_t>(i % per_sample);
    positions.push_back(one);
  }
  return positions;
}

}  // namespace

MismatchPositions ReadPredictions(const MismatchOptions& options) {
  const Predictions a = ReadSide(options.paths[0]), b = ReadSide(options.paths[1]);
  RequireSame(a, b);
  std::vector<std::int64_t> targets;
  for (const std::string& path : options.paths)
    if (!a.of_tokens && targets.empty())
      targets = ReadTargets(
          path,
          a.values.size() / static_cast<std::size_t>(std::max<std::int64_t>(1, a.shape.back())),
          a.shape.back());
  MismatchPositions positions;
  positions.has_agreement = !a.of_tokens;
  positions.has_positions = a.shape.size() == (a.of_tokens ? 2u : 3u);
  positions.samples = a.shape.front();
  positions.differences_of = a.of_tokens       ? "the drawn token"
                             : targets.empty() ? "the likeliest of the first side"
                                               : "the target";
  positions.apart = CompareAll(a, b, targets);
  if (positions.apart.empty()) throw DataError(a.path + ": " + a.name + " is empty");
  if (!options.twin.empty()) {
    const Predictions twin = ReadSide(options.twin);
    RequireSame(a, twin);
    positions.twins.push_back(CompareAll(a, twin, targets));
  }
  return positions;
}

}  // namespace ada::study
