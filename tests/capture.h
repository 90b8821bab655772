// doctest's CAPTURE for compilers that cannot capture a structured binding in a lambda, as clang
// before version 16: it shows a reference to the value instead. tests/CMakeLists.txt includes it
// there in front of every file.
#pragma once
#include <doctest/doctest.h>

#undef CAPTURE
#define ADA_JOINED_AS_IS(a, b) a##b
#define ADA_JOINED(a, b) ADA_JOINED_AS_IS(a, b)
#define CAPTURE(value)                                 \
  const auto& ADA_JOINED(captured_, __LINE__) = value; \
  INFO(#value " := ", ADA_JOINED(captured_, __LINE__))
