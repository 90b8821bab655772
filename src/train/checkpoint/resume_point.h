// Where a run goes on: the newest checkpoint that is whole and fits the configuration.
#pragma once
#include <optional>
#include <string>

#include "config/config.h"
#include "telemetry/log.h"
#include "train/checkpoint/checkpoint.h"

namespace ada::train {

struct ResumePoint {
  std::string stem;  // of the checkpoint's files
  CheckpointState state;
};

// The newest usable checkpoint in `folder`; damaged ones are reported as warnings and passed over.
// None: nullopt. Throws ConfigError where the configuration differs in a key that may not change.
std::optional<ResumePoint> FindResumePoint(const std::string& folder, const config::Config& config,
                                           telemetry::Log& log);

}  // namespace ada::train
