// What the benchmark's programs share: their words, and what they do about errors.
#pragma once
#include <cstdio>
#include <exception>
#include <functional>
#include <string>

#include "config/load.h"
#include "error.h"
#include "run/assemble/assemble.h"

namespace ada::bench {

// Reads the words from number `first` on, which are KEY=VALUE as after ada-train's --set.
inline config::Overrides OverridesFrom(int first, int count, char** words) {
  config::Overrides overrides;
  for (int i = first; i < count; ++i) {
    const std::string word = words[i];
    const std::size_t sign = word.find('=');
    if (sign == std::string::npos) throw ConfigError(word + ": expected KEY=VALUE");
    overrides.emplace_back(word.substr(0, sign), word.substr(sign + 1));
  }
  return overrides;
}

// A configuration with what follows from its data; `image`: their shape.
inline config::Config LoadCompleted(const char* path, const config::Overrides& overrides,
                                    Shape& image) {
  const config::Config config = config::Load(path, overrides).config;
  const data::DatasetInfo info = run::InspectData(config);
  image = {1, info.height, info.width, info.channels};
  return run::Completed(config, info);
}

// The exit status of a program whose words are enough, or are not.
inline int Finish(bool enough, const char* usage, const std::function<void()>& work) {
  if (!enough) {
    std::fprintf(stderr, "usage: %s\n", usage);
    return 2;
  }
  try {
    work();
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}

}  // namespace ada::bench
