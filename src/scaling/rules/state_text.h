// State of policies and layers as text that reads back to the same bits, for checkpoints. Knows no
// file format: how the maps are stored is the checkpoint's business.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "scaling/rules/rules.h"

namespace ada::scaling {

using StateMap = std::map<std::string, std::string>;

// Hexadecimal float ("0x1.8p+3", "-0x1p-1", "inf", "nan"), independent of the locale.
std::string ToHex(double value);

// Throws DataError unless `state` has exactly these keys.
void ExpectKeys(const StateMap& state, std::string_view policy,
                const std::vector<std::string_view>& keys);
// The value of a key that ExpectKeys has checked. Throw DataError if it is not a number.
double ReadHex(const StateMap& state, const std::string& key);
std::int64_t ReadInteger(const StateMap& state, const std::string& key);

// The state that a layer keeps between steps (rules.h), without state_scale, which the policy sets
// again; the key `tail` exists once exact_range has observed one. LoadLayerState throws DataError
// naming `layer` or the key. An unbound value of NaN, 0 or inf is valid: `reference` makes them.
StateMap SaveLayerState(const LayerState& state);
LayerState LoadLayerState(const StateMap& state, const std::string& layer);

}  // namespace ada::scaling
