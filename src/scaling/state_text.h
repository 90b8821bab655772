// Policy and layer state as text that reads back to the same bits, for checkpoints. Knows no file
// format: a checkpoint stores the maps as it likes.
#pragma once
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>

#include "scaling/policy.h"

namespace ada::scaling {

// Hexadecimal float ("0x1.8p+3", "-0x1p-1", "inf", "nan"), independent of the locale.
std::string ToHex(double value);

// Throws DataError unless `state` has exactly these keys.
void ExpectKeys(const StateMap& state, std::string_view policy,
                std::initializer_list<std::string_view> keys);
// The value of a key that ExpectKeys has seen. Throw DataError where it is not a number.
double ReadHex(const StateMap& state, const std::string& key);
std::int64_t ReadInteger(const StateMap& state, const std::string& key);

// What a layer remembers between steps (rules.h). LoadLayerState throws DataError naming `layer`.
StateMap SaveLayerState(const LayerState& state);
LayerState LoadLayerState(const StateMap& state, const std::string& layer);

}  // namespace ada::scaling
