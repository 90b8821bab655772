// A text that a language model goes on with, as a command.
#pragma once
#include <cstdint>
#include <iosfwd>
#include <string>
#include <vector>

#include "config/config.h"
#include "telemetry/log.h"

namespace ada::train {

// One of the two prompts is given; which one a model takes follows from its data (TokensAreBytes).
struct GenerateOptions {
  std::string prompt;                       // text, of models whose tokens are bytes
  std::vector<std::int64_t> prompt_tokens;  // of others
  std::int64_t tokens = 256;                // to be made
  double temperature = 1;                   // logits are divided by it; 0: always the likeliest
  std::uint64_t seed = 1;
};
// Goes on with a prompt, token by token, by the weights of a language model (`weights`: as of
// Predict), and prints the prompt and what follows: as text, where bytes that are no UTF-8 become
// U+FFFD, or as numbers between blanks. Where the text is longer than the context the last tokens
// of it are looked at. The same options give the same text. The data set is looked at only where a
// checkpoint does not say how long the context is.
void Generate(const config::Config& config, const std::string& weights,
              const GenerateOptions& options, std::ostream& out, telemetry::Log& log);

}  // namespace ada::train
