// What follows from a configuration beyond its keys.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "config/config.h"

namespace ada::config {

// Whether `normalize: standard` changes the images of the data set: its numbers are known, or are
// measured. Arrays of a file may be values that it leaves as they are.
bool HasStandardNormalization(const Config& config);

// The words of log.statistics whose tensors the run rounds, in some layer and some step: dx and dy,
// dw, y, w, operands. Tensors in fp32 are not rounded.
std::vector<std::string> RoundedStatistics(const PrecisionConfig& precision);
// Those that log.statistics has beside the gradients where it is not given: operands; y and w where
// activations and weights have a format of their own of fewer than 16 bits.
std::vector<std::string> AddedStatistics(const PrecisionConfig& precision);
// Those that are rounded and that log.statistics leaves out: nothing is known of what they lose.
std::vector<std::string> UncountedStatistics(const Config& config);

// Tensors of the update whose rows count what a single step loses and the mean of many keeps, as
// they are rounded stochastically: update and master, accumulated, state.
std::vector<std::string> KeptInTheMean(const PrecisionConfig& precision);

// What holds in a step, from 1: precision.schedule applied, and then empty.
PrecisionConfig PrecisionAt(const PrecisionConfig& precision, std::int64_t step);
// The last step in which the same holds as in `step`, as precision.schedule says.
std::int64_t LastStepAsAt(const PrecisionConfig& precision, std::int64_t step);

// The changes made by such an entry, as its keys in one line: "{format: bf16, recipe: none}".
// Operands that come from a recipe are not listed.
std::string TextOf(const PrecisionSwitchConfig& change);

// Attempts that may follow the first of a step.
std::int64_t MaxRetries(const TrainConfig& train);

// Whether the smallest loss tells which evaluation is the best.
bool DecidesByLoss(const Config& config);
// Whether tokens are bytes of a text, so that a loss is one of bits a byte; of task language alone.
bool TokensAreBytes(const Config& config);

// What a scenario of log.what_if is called where it has no name, from what the entry says, without
// commas: "scale=1024", "format=fp8_e5m2 scale=8", "policy=dynamic preset=apex". From `scaling` it
// takes the policy and what differs from that policy's defaults: call it before defaults are filled
// in.
std::string NameOf(const WhatIfConfig& what_if);

}  // namespace ada::config
