#include "src/communicator/communicator_module.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "stowage/error.h"
#include "stowage/simulated_device.h"

namespace stowage {
namespace {

using testing::AllOf;
using testing::HasSubstr;

std::string refusal(const std::vector<std::filesystem::path>& candidates) {
  try {
    communication::load_module(communication::mpi_module, candidates);
  } catch (const InvalidInput& error) {
    return error.what();
  }
  return "none";
}

TEST(CommunicatorModule, SaysWhereItLookedAndWhatToInstall) {
  EXPECT_THAT(refusal({"/nowhere/a.so", "/nowhere/b.so"}),
              AllOf(HasSubstr("/nowhere/a.so, /nowhere/b.so"), HasSubstr("install libopenmpi-dev"),
                    HasSubstr("STOWAGE_MPI_MODULE")));
}

TEST(CommunicatorModule, SaysWhichLibraryIsMissing) {
  EXPECT_THAT(refusal({LACKING_MPI_MODULE}),
              AllOf(HasSubstr("libmpi_of_nowhere.so"), HasSubstr("install Open MPI 4.1")));
}

TEST(CommunicatorModule, RefusesAnotherBuildAndAnotherLibrary) {
  EXPECT_THAT(refusal({OLDER_MPI_MODULE}), HasSubstr("of another build"));
  EXPECT_THAT(refusal({NO_MPI_MODULE}), HasSubstr("is not the MPI module"));
}

// In the environment of this test.
TEST(CommunicatorModule, AProgramWithoutItStartsAndSaysSo) {
  const auto device = open_simulated_device({.capacity = 1_MiB});
  EXPECT_THROW(open_mpi_communicator(*device, nullptr), InvalidInput);
  try {
    open_nccl_communicator(*device, nullptr);
    FAIL() << "there is no such module";
  } catch (const InvalidInput& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("/nowhere/libstowage_nccl.so"), HasSubstr("install NCCL")));
  }
}

}  // namespace
}  // namespace stowage
