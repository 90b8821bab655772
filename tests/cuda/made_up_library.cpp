// A shared library that no loader finds by itself: built for library_test.cpp.
extern "C" int AdaMadeUpAnswer() { return 42; }
