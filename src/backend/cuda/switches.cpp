// See switches.h.
#include "backend/cuda/switches.h"

#include <array>
#include <charconv>
#include <string_view>
#include <system_error>

#include "error.h"

namespace ada::backend::cuda {
namespace {

using Switch = bool CudaSwitches::*;
struct Flag {
  const char* name;
  Switch value;
};
constexpr std::array<Flag, 9> kFlags = {{{"ADA_CUDA_GRAPHS", &CudaSwitches::graphs},
                                         {"ADA_CUDA_SIDE_STREAM", &CudaSwitches::side_stream},
                                         {"ADA_CUDA_PLAIN", &CudaSwitches::plain},
                                         {"ADA_CUDA_LAST_BLOCK", &CudaSwitches::last_block},
                                         {"ADA_CUDA_FUSED", &CudaSwitches::fused},
                                         {"ADA_CUDA_ATTENTION", &CudaSwitches::attention},
                                         {"ADA_CUDA_CUBLAS", &CudaSwitches::cublas},
                                         {"ADA_CUDA_ROUND", &CudaSwitches::round},
                                         {"ADA_CUDA_POISON", &CudaSwitches::poison}}};

constexpr char kPdl[] = "ADA_CUDA_PDL", kSkip[] = "ADA_CUDNN_SKIP", kScores[] = "ADA_CUDA_SCORES";
constexpr std::array<const char*, 3> kPdlWords = {"off", "late", "early"};  // as Pdl has them
constexpr int kMostSkipped = 99, kMostScores = 1 << 30;

[[noreturn]] void Refuse(const char* name, std::string_view value, const std::string& expected) {
  throw DeviceError(std::string(name) + "=" + std::string(value) + ": expected " + expected);
}

bool FlagOf(const char* name, std::string_view value) {
  if (value != "0" && value != "1") Refuse(name, value, "0 or 1");
  return value == "1";
}

CudaSwitches::Pdl PdlOf(std::string_view value) {
  for (std::size_t i = 0; i < kPdlWords.size(); ++i)
    if (value == kPdlWords[i]) return static_cast<CudaSwitches::Pdl>(i);
  Refuse(kPdl, value, "off, late or early");
}

// what: of which it is a number.
int NumberOf(const char* name, std::string_view value, const char* what, int least, int most) {
  int number = 0;
  const char* const end = value.data() + value.size();
  const auto [at, error] = std::from_chars(value.data(), end, number);
  if (error != std::errc() || at != end || number < least || number > most)
    Refuse(name, value,
           std::string("a number of ") + what + ", " + std::to_string(least) + " to " +
               std::to_string(most));
  return number;
}

}  // namespace

CudaSwitches SwitchesOf(const CudaSwitches& set, const VariableValue& value) {
  CudaSwitches switches = set;
  for (const Flag& flag : kFlags)
    if (const char* text = value(flag.name)) switches.*flag.value = FlagOf(flag.name, text);
  if (const char* text = value(kPdl)) switches.pdl = PdlOf(text);
  if (const char* text = value(kSkip))
    switches.cudnn_skip = NumberOf(kSkip, text, "engines", 0, kMostSkipped);
  if (const char* text = value(kScores))
    switches.scores = NumberOf(kScores, text, "scores", 1, kMostScores);
  if (const char* text = value("ADA_CUDA_TRACE")) switches.trace = text;
  return switches;
}

std::string SwitchesText(const CudaSwitches& switches) {
  const CudaSwitches made;
  std::string text;
  const auto add = [&text](const char* name, const std::string& value) {
    text += ", " + std::string(name) + "=" + value;
  };
  for (const Flag& flag : kFlags)
    if (switches.*flag.value != made.*flag.value) add(flag.name, switches.*flag.value ? "1" : "0");
  if (switches.pdl != made.pdl) add(kPdl, kPdlWords[static_cast<std::size_t>(switches.pdl)]);
  if (switches.cudnn_skip != made.cudnn_skip) add(kSkip, std::to_string(switches.cudnn_skip));
  if (switches.scores != made.scores) add(kScores, std::to_string(switches.scores));
  return text;
}

}  // namespace ada::backend::cuda
