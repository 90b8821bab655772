// What the loss of a language model, in nats a token, says in other words.
#pragma once
#include <cmath>

namespace ada::telemetry {

// e^loss: among how many tokens, all as likely, it would be as hard to guess.
inline double Perplexity(double loss) { return std::exp(loss); }
// The loss in bits instead of nats; where tokens are bytes, bits a byte.
inline double Bits(double loss) { return loss / std::log(2.0); }

}  // namespace ada::telemetry
