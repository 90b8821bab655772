// What a scenario of log.what_if is called where it has no name.
#pragma once
#include <string>

#include "config/config.h"

namespace ada::config {

// From what the entry says, without commas: "scale=1024", "format=fp8_e5m2 scale=8",
// "policy=dynamic preset=apex". Of `scaling` the policy and what differs from that policy as it is
// when nothing is given: call it before defaults are filled in. Its `name` is not looked at.
std::string NameOf(const WhatIfConfig& what_if);

}  // namespace ada::config
