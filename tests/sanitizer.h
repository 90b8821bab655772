// Whether the tests were built under a sanitizer that needs memory and time of its own.
#pragma once

namespace ada::testing {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kShadowMemory = true;
#else
inline constexpr bool kShadowMemory = false;
#endif

// ThreadSanitizer writes a file of its own as a program starts, and a limit on the size of files
// ends it there.
#if defined(__SANITIZE_THREAD__)
inline constexpr bool kThreadSanitizer = true;
#else
inline constexpr bool kThreadSanitizer = false;
#endif

}  // namespace ada::testing
