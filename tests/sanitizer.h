// Whether the tests were built under a sanitizer that needs memory and time of its own.
#pragma once

namespace ada::testing {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kShadowMemory = true;
#else
inline constexpr bool kShadowMemory = false;
#endif

}  // namespace ada::testing
