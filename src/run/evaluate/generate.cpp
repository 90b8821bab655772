// The generate command.
#include <algorithm>
#include <cmath>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "config/load.h"
#include "error.h"
#include "io/shown_text.h"
#include "number/random.h"
#include "run/assemble/assemble.h"
#include "run/evaluate/evaluation_commands.h"
#include "run/evaluate/weights.h"
#include "step/specs.h"

namespace ada::run {
namespace {

// The stream of random numbers is its own, so that the draws do not depend on what else uses the
// seed.
constexpr std::uint64_t kGenerateStream = StreamId("generate");

// A network that predicts how a text continues. Every token costs a whole forward pass over the
// window: keys and values are not cached between tokens.
class TextWriter {
 public:
  TextWriter(graph::Graph& graph, backend::Backend& backend, std::int64_t context)
      : graph_(graph),
        backend_(backend),
        window_(static_cast<std::size_t>(context)),
        targets_(static_cast<std::size_t>(context)),
        logits_(static_cast<std::size_t>(graph.logits().shape.per_image())) {
    pass_.training = false;
    pass_.rows = 1;
    graph.RefreshWeights(pass_);
  }

  // The logits of the token after `text`, one for each token of the vocabulary; valid until the
  // next call. A causal network ignores what is in the window after the text.
  std::span<const float> After(const std::vector<std::int32_t>& text) {
    const std::size_t seen = std::min(text.size(), window_.size());
    std::fill(window_.begin(), window_.end(), 0);
    std::copy(text.end() - static_cast<std::ptrdiff_t>(seen), text.end(), window_.begin());
    graph_.SetTokens(window_.data(), {targets_.data()}, 1);
    graph_.Forward(pass_);
    backend_.Read(graph_.logits(), 1, logits_.data());
    const auto classes = static_cast<std::size_t>(graph_.classes());
    return {logits_.data() + (seen - 1) * classes, classes};
  }

 private:
  graph::Graph& graph_;
  backend::Backend& backend_;
  backend::Pass pass_;
  std::vector<std::int32_t> window_, targets_;  // targets_: unknown, so made up
  std::vector<float> logits_;
};

std::int32_t LikeliestToken(std::span<const float> logits) {
  return static_cast<std::int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

// A draw from softmax(logits / temperature).
// With the largest logit subtracted the largest term is 1, so that the sum is finite and not 0 at
// any temperature.
std::int32_t Draw(std::span<const float> logits, double temperature, RandomStream* random) {
  const double highest = logits[static_cast<std::size_t>(LikeliestToken(logits))];
  std::vector<double> sums;
  double sum = 0;
  for (const float z : logits)
    sums.push_back(sum += std::exp((static_cast<double>(z) - highest) / temperature));
  constexpr double kTwoTo32 = 4294967296.0;
  const double place = sum * (static_cast<double>(random->NextU32()) / kTwoTo32);
  const auto found = std::upper_bound(sums.begin(), sums.end(), place);
  return static_cast<std::int32_t>(std::min(found, sums.end() - 1) - sums.begin());
}

void RequireNumbers(std::span<const float> logits) {
  if (std::all_of(logits.begin(), logits.end(), [](float z) { return std::isfinite(z); })) return;
  throw DataError("the network's logits are not finite: there is no next token to be drawn");
}

// The text and its tokens.
std::vector<std::int32_t> PromptOf(const GenerateOptions& options, bool bytes, int vocabulary) {
  if (!options.prompt.empty() && !bytes)
    throw ConfigError(
        "--prompt: the model's tokens are numbers that another program made of text; expected "
        "--prompt-tokens, such as 464,3290");
  std::vector<std::int64_t> given = options.prompt_tokens;
  for (const char c : options.prompt) given.push_back(static_cast<unsigned char>(c));
  if (given.empty())
    throw ConfigError(bytes ? "--prompt is missing: the text to go on with"
                            : "--prompt-tokens is missing: the tokens to go on with");
  std::vector<std::int32_t> tokens;
  for (const std::int64_t token : given) {
    if (token < 0 || token >= vocabulary)
      throw ConfigError((options.prompt.empty() ? "--prompt-tokens: " : "--prompt: ") +
                        std::to_string(token) + " is no token of the model; expected 0 to " +
                        std::to_string(vocabulary - 1));
    tokens.push_back(static_cast<std::int32_t>(token));
  }
  return tokens;
}

// Prints tokens as they come: bytes as they are, those of one character together, so that a
// terminal can show it; other tokens as numbers.
class TokenPrinter {
 public:
  TokenPrinter(bool bytes, std::ostream& out) : bytes_(bytes), out_(out) {}

  void Add(std::int32_t token) {
    if (!bytes_) {
      out_ << (first_ ? "" : " ") << token;
      first_ = false;
      return;
    }
    pending_ += static_cast<char>(token);
    Print(/*end=*/false);
    out_.flush();
  }
  void Finish() {
    Print(/*end=*/true);
    out_ << '\n';
  }

 private:
  // A character of UTF-8 has at most four bytes: with fewer it may still become one.
  void Print(bool end) {
    constexpr std::size_t kMostBytes = 4;
    std::size_t at = 0;
    while (at < pending_.size()) {
      const std::size_t length = CharacterLength(pending_, at);
      if (length == 0 && !end && pending_.size() - at < kMostBytes && MayBegin(at)) break;
      const std::size_t bytes = std::max<std::size_t>(length, 1);  // of none that is a character: 1
      out_ << pending_.substr(at, bytes);
      at += bytes;
    }
    pending_.erase(0, at);
  }
  // Whether the bytes from `at` on may be the beginning of a longer character.
  bool MayBegin(std::size_t at) const {
    const auto byte = [this](std::size_t i) { return static_cast<unsigned char>(pending_[i]); };
    if (byte(at) < 0xC2 || byte(at) > 0xF4) return false;
    for (std::size_t i = at + 1; i < pending_.size(); ++i)
      if ((byte(i) & 0xC0u) != 0x80u) return false;
    return true;
  }

  const bool bytes_;
  std::ostream& out_;
  std::string pending_;
  bool first_ = true;
};

// The network's input and the configuration, completed from a checkpoint or the data.
struct KnownText {
  config::Config config;
  Shape input;
};
KnownText FindText(const config::Config& given, const std::string& weights) {
  const std::optional<CheckpointState> state = StateOfCheckpoint(weights);
  if (state && state->input) {
    config::Config config = given;
    // A configuration of one's own (--config) may leave the vocabulary to the data.
    if (config.model.classes == 0)
      config.model.classes = config::LoadText(state->config, weights, {}).config.model.classes;
    return {config, state->input->image};
  }
  const data::DatasetInfo info = InspectData(given);
  return {Completed(given, info), {1, info.height, info.width, info.channels}};
}

}  // namespace

void Generate(const config::Config& given, const std::string& weights,
              const GenerateOptions& options, std::ostream& out, telemetry::Log& log) {
  if (given.task != Task::kLanguage)
    throw ConfigError("generate is for language models, and " + weights +
                      " is none (task: language); `ada-train predict` looks at photos");
  const ChosenBackend chosen = MakeBackend(given.device);
  auto [config, input] = FindText(given, weights);
  config.data.evaluate_batch_size = 1;
  const auto graph = graph::Graph::Build(step::EvaluationGraph(config, input), *chosen.backend);
  const bool bytes = TokensAreBytes(config);
  std::vector<std::int32_t> text = PromptOf(options, bytes, graph->classes());
  LoadEvaluatedWeights(weights, EvaluatesAverage(config), *graph, *chosen.backend, log);
  TextWriter writer(*graph, *chosen.backend, input.h);
  TokenPrinter printer(bytes, out);
  for (const std::int32_t token : text) printer.Add(token);
  RandomStream random(options.seed, kGenerateStream);
  for (std::int64_t i = 0; i < options.tokens; ++i) {
    const std::span<const float> logits = writer.After(text);
    RequireNumbers(logits);
    text.push_back(options.temperature == 0 ? LikeliestToken(logits)
                                            : Draw(logits, options.temperature, &random));
    printer.Add(text.back());
  }
  printer.Finish();
}

}  // namespace ada::run
