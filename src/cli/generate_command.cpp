// generate: a text by the weights of a language model.
#include <algorithm>
#include <cmath>
#include <iostream>
#include <memory>

#include "cli/command_line.h"
#include "cli/config_options.h"
#include "config/load.h"
#include "error.h"
#include "io/text.h"
#include "run/evaluate/evaluation_commands.h"
#include "telemetry/log.h"

namespace ada::cli {
namespace {

// The largest seed is the last whole number up to which a double holds each one.
constexpr double kMostGenerated = 1e9, kHottest = 1e6, kLargestSeed = 9007199254740992.0;

// Whole numbers are parsed as doubles, so that 1e6 is one; WholeNumber refuses fractions.
struct GenerateArguments : ConfigArguments {
  std::string run;
  bool best = false;
  std::string prompt, prompt_tokens;
  double tokens = 256, temperature = 1, seed = 1;
  run::GenerateOptions options;
};

// "464,3290": one comma, blanks or both between two numbers.
// Throws ConfigError with the place of the first character that does not fit. Nine digits fit every
// vocabulary and cannot overflow.
std::vector<std::int64_t> TokensOf(const std::string& text) {
  constexpr std::size_t kMostDigits = 9;
  const auto skip = [&](std::size_t at, const char* what) {
    return std::min(text.find_first_not_of(what, at), text.size());
  };
  const auto fail = [&](std::size_t at) {
    const std::string found = at == text.size() ? "it ends" : "there stands " + text.substr(at, 1);
    throw ConfigError("--prompt-tokens: '" + text +
                      "'; expected whole numbers between commas, such as 464,3290; at character " +
                      std::to_string(at + 1) + " " + found);
  };
  std::vector<std::int64_t> tokens;
  std::size_t at = 0;
  for (bool more = !text.empty(); more;) {
    const std::size_t end = skip(at, "0123456789");
    if (end == at || end - at > kMostDigits) fail(at);
    tokens.push_back(std::stoll(text.substr(at, end - at)));
    at = skip(end, " ");
    more = at < text.size();
    if (more && text[at] == ',')
      at = skip(at + 1, " ");
    else if (more && at == end)
      fail(at);
  }
  return tokens;
}

double WholeNumber(double value, double low, double high, const char* option,
                   const char* expected) {
  const double checked = Checked(value, low, high, option, expected);
  if (checked == std::floor(checked)) return checked;
  throw ConfigError(std::string(option) + " " + ShortestText(value) + ": expected " + expected);
}

// The text goes to stdout as it is made; everything else goes to the log.
int Generate(GenerateArguments& a) {
  RequireOperand(a.run, a.set, "RUN", "generate");
  if (!a.prompt.empty() && !a.prompt_tokens.empty())
    throw ConfigError("--prompt and --prompt-tokens: expected one of them");
  run::GenerateOptions& o = a.options;
  o.prompt = a.prompt;
  o.prompt_tokens = TokensOf(a.prompt_tokens);
  o.tokens = static_cast<std::int64_t>(
      WholeNumber(a.tokens, 0, kMostGenerated, "--tokens", "a whole number from 0 to 1e9"));
  o.temperature = Checked(a.temperature, 0, kHottest, "--temperature", "a number from 0 to 1e6");
  o.seed = static_cast<std::uint64_t>(
      WholeNumber(a.seed, 0, kLargestSeed, "--seed", "a whole number from 0 to 2^53"));
  // The folder of a run stands for a checkpoint, as in evaluate.
  const std::string path = WeightsAt(a.run, a.best);
  const config::Config config = EvaluatedConfigOf(a, path);
  telemetry::Log log;
  run::Generate(config, path, o, std::cout, log);
  return 0;
}

}  // namespace

// RUN may follow --set, so it is not declared as required; RequireOperand asks for it.
Commands AddGenerateCommands(CLI::App& app) {
  auto a = std::make_shared<GenerateArguments>();
  CLI::App* generate =
      Add(app, "generate", "a text, token by token, by a language model",
          "  ada-train generate runs/gpt2_jargon --prompt \"hacker n.\" --temperature 0.8\n"
          "  ada-train generate runs/gpt2 --prompt-tokens 464,3290 --tokens 20 --seed 7");
  generate
      ->add_option("RUN", a->run,
                   "a run's folder, whose newest checkpoint is taken; either file of a\n"
                   "checkpoint; or, with --config, weights alone (safetensors)")
      ->type_name("");
  generate->add_flag("--best", a->best, "of a folder: the best checkpoint instead of the newest");
  generate
      ->add_option("-c,--config", a->config,
                   "the experiment (YAML or JSON), instead of the checkpoint's own")
      ->type_name("FILE");
  generate
      ->add_option("--prompt", a->prompt,
                   "what to go on with, of models whose tokens are bytes; what is\n"
                   "longer than the context is seen in part: its end")
      ->type_name("TEXT");
  generate
      ->add_option("--prompt-tokens", a->prompt_tokens,
                   "the same as tokens, 464,3290, of any model; what follows is printed\n"
                   "as numbers where tokens are no bytes")
      ->type_name("LIST");
  generate->add_option("--tokens", a->tokens, "tokens to make; default: 256")->type_name("N");
  generate
      ->add_option("--temperature", a->temperature,
                   "logits are divided by it; 0: always the likeliest token; default: 1")
      ->type_name("T");
  generate->add_option("--seed", a->seed, "of the draws; default: 1")->type_name("S");
  AddOverrides(*generate, *a, MachineOptions());
  return {{generate, [a] { return Generate(*a); }}};
}

}  // namespace ada::cli
