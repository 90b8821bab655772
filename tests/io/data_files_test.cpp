// Which failures are the machine's, and that reading files of data tells them apart.
#include "io/data_files.h"

#include <doctest/doctest.h>

#include <cerrno>
#include <filesystem>
#include <string>

#include "io/file.h"
#include "io/hash.h"
#include "io/tensor_files/safetensors.h"
#include "resource_limits.h"
#include "temp_folder.h"

namespace ada {
namespace {

template <class E, class Call>
std::string Message(Call call) {
  try {
    call();
  } catch (const E& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST_SUITE("cpu") {
  TEST_CASE("data files: what a path is wrong in is the user's, all else the machine's") {
    for (const int error : {0, ENOENT, ENOTDIR, EISDIR, EACCES, EPERM, ELOOP, ENAMETOOLONG, ENXIO})
      CHECK_FALSE(IsOfMachine(error));
    for (const int error : {EMFILE, ENFILE, ENOMEM, EIO, ESTALE, ETIMEDOUT, EAGAIN, ENOTCONN,
                            ENODEV, EREMOTEIO, EUCLEAN, EBADMSG, EHOSTDOWN, ENOLINK, ENODATA})
      CHECK(IsOfMachine(error));
    CHECK(Message<DeviceError>([] { ThrowUnread<DataError>("a.png: why", EMFILE); }) ==
          "a.png: why; raise the limit of open files (ulimit -n), or use fewer data.workers");
    CHECK(Message<DeviceError>([] { ThrowUnread<DataError>("a.png: why", EIO); }) ==
          "a.png: why; the disk or server that holds it does not give it: try again when it does");
    CHECK(Message<DataError>([] { ThrowUnread<DataError>("a.png: why", EACCES); }) == "a.png: why");
    CHECK(NoMemory("a.png", "decode it").exit_code() == 4);
  }

  TEST_CASE("data files: without a descriptor nothing is missing, and nothing is empty") {
    const testing::TempFolder folder;
    const std::string path = folder.Write("a.txt", "text"), none = folder / "none";
    {
      const testing::NoDescriptors limit;
      const std::string reason = ": Too many open files; raise the limit of open files (ulimit -n)";
      CHECK(Message<DeviceError>([&] {
              ReadDataFile(path, 10);
            }).starts_with(path + ": cannot be opened" + reason));
      CHECK(Message<DeviceError>([&] { OpenDataFile(path); }).starts_with(path));
      CHECK(Message<DeviceError>([&] {
              ListDataFolder(folder.path());
            }).starts_with(folder.path() + ": the folder cannot be read" + reason));
      CHECK(Message<DeviceError>([&] {
              ReadFile<ConfigError>(path, 10);
            }).starts_with(path + ": cannot be opened" + reason));
      CHECK(Message<DeviceError>([&] {
              HashFile(path);
            }).starts_with(path + ": cannot be opened" + reason));
      CHECK(Message<DeviceError>([&] {
              SafetensorsFile::Open(path);
            }).starts_with(path + ": cannot be opened" + reason));
      CHECK(Message<DeviceError>([&] {
              ListFolder(folder.path());
            }).starts_with(folder.path() + ": the folder cannot be read" + reason));
      CHECK(IsThere(path));  // needs none
    }
    CHECK(ReadDataFile(path, 10) == "text");
    CHECK(ListDataFolder(folder.path()).size() == 1);
    CHECK(Message<DataError>([&] { ReadDataFile(none, 10); }) ==
          none + ": cannot be opened: No such file or directory");
    CHECK(Message<DataError>([&] {
            ReadDataFile(path, 3);
          }).find("has 4 B (4 bytes); at most 3 B") != std::string::npos);
    CHECK_FALSE(IsThere(none));
    CHECK_FALSE(IsThere(path + "/x"));
    CHECK_FALSE(IsDataFolder(path));
    CHECK(IsDataFolder(folder.path()));
  }
}

}  // namespace ada
