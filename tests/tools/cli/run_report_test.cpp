#include "tools/cli/run_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

namespace stowage {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

RunRecord record_of(const std::string& lines) {
  std::istringstream text(lines);
  return read_run_record(text);
}

RunRecord two_processes() {
  return record_of(
      "0,1,1,process,-,-1,0,0x0,0,0,0,<b>one\n"
      "1000,1,1,alloc,device,0,0,0x1000,1048576,1048576,0,\n"
      "5000,1,1,free,device,0,0,0x1000,1048576,0,0,\n"
      "3000,2,2,alloc,device,0,0,0x1000,2097152,2097152,0,\n"
      "4000,2,2,alloc,managed,0,0,0x2000,4096,2097152,0,\n"
      "4000,1,1,calls,-,-1,0,0x0,0,0,0,2\n"
      "4000,2,2,calls,-,-1,0,0x0,0,0,0,2\n");
}

const RunReport report{{"./program", "--of", "<mine>"}, 4_MiB, {}, "exit code 0"};

TEST(RunReport, SaysInTextWhatWasUsed) {
  const std::string text = run_report_text(report, two_processes());
  EXPECT_THAT(text, HasSubstr("program       ./program --of <mine>\n"));
  EXPECT_THAT(text, HasSubstr("limit         4.00 MiB (4194304 bytes)\n"));
  EXPECT_THAT(text, HasSubstr("calls         4 caught in 2 processes\n"));
  EXPECT_THAT(text, HasSubstr("peak          3.00 MiB (3145728 bytes) of device 0\n")) << "of both at once";
  EXPECT_THAT(text,
              HasSubstr("device        2 allocations of 3.00 MiB (3145728 bytes), 1 frees, 0 failed, 0 over "
                        "the limit, 2.00 MiB (2097152 bytes) left\n"));
  EXPECT_THAT(text, Not(HasSubstr("note")));
}

TEST(RunReport, ShowsNamesWithoutWhatATerminalObeys) {
  const RunRecord record = record_of(
      "0,1,1,process,-,-1,0,0x0,0,0,0,one\n"
      "1,1,1,alloc,\x1b[2Jdevice,0,0,0x1000,1048576,1048576,0,\n"
      "2,1,1,unwatched,-,-1,0,0x0,0,0,0,\x1b]0;mine\x07\n");
  const std::string text =
      run_report_text({{"./a\nlimit  none", "\xe2\x80\xae"}, {}, {}, "exit code 0"}, record);
  EXPECT_THAT(text, HasSubstr("program       ./a\\u000alimit  none \\u202e\n"));
  EXPECT_THAT(text, Not(HasSubstr("\x1b")));
  EXPECT_THAT(text, HasSubstr("\\u001b]0;mine\\u0007"));
}

TEST(RunReport, DrawsMemoryOverTimeOnOnePage) {
  const std::string page = run_report_html(report, two_processes());
  EXPECT_THAT(page, HasSubstr("<title>./program --of &lt;mine&gt;</title>"));
  EXPECT_THAT(page, HasSubstr("&lt;b&gt;one"));
  // Steps of a microsecond; the limit of 4 MiB is the top, 220 pixels high.
  EXPECT_THAT(page, HasSubstr("M0,220H0.00V220.00H160.00V165.00H480.00V55.00H800.00V165.00H960V220Z"));
  EXPECT_THAT(page, HasSubstr("class=\"limit\" x1=\"0\" x2=\"960\" y1=\"0.00\""));
  EXPECT_THAT(page, HasSubstr("<td>managed<td>1<td>4.00 KiB<td>0<td>0<td>0<td>4.00 KiB<td>4.00 KiB"));
  for (const char* const link : {"http", "src=", "href", "<script"}) EXPECT_THAT(page, Not(HasSubstr(link)));
}

TEST(RunReport, SaysWhenNothingWasCaught) {
  EXPECT_EQ(nothing_caught(two_processes()), "");
  EXPECT_THAT(nothing_caught(record_of("")),
              HasSubstr("0 calls were caught: no process took the libraries in"));
  const RunRecord idle = record_of("0,1,1,process,-,-1,0,0x0,0,0,0,sh\n");
  EXPECT_THAT(nothing_caught(idle), HasSubstr("0 calls were caught: the libraries were in 1 process,"));
  EXPECT_THAT(run_report_text(report, idle), HasSubstr("note          0 calls were caught"));
  EXPECT_THAT(run_report_html(report, idle), HasSubstr("<p class=\"note\">0 calls were caught"));
}

TEST(RunReport, SaysThatCallsMayBeMissing) {
  EXPECT_EQ(calls_missing(two_processes()), "");
  RunRecord record = record_of(
      "0,1,1,alloc,device,0,0,0x1000,1,1,0,\n"
      "0,2,2,alloc,device,0,0,0x1000,1,1,0,\n"
      "0,3,3,process,-,-1,0,0x0,0,0,0,killed_before_it_called\n");
  EXPECT_EQ(calls_missing(record),
            "some calls may be missing: 2 processes ended without a last line, killed or crashed; calls that "
            "were under way are not counted");
  record.running = {2, 4};
  record.unwritten = 1;
  EXPECT_EQ(
      calls_missing(record),
      "some calls may be missing: 1 process could not write all lines; 2 processes went on when the "
      "program had ended; 1 process ended without a last line, killed or crashed; calls that were under "
      "way are not counted");
  EXPECT_THAT(run_report_text(report, record),
              HasSubstr("note          some calls may be missing: 1 process"));
}

TEST(RunReport, TellsProgramsFromTheProcessesThatRanThem) {
  const RunRecord record = record_of(
      "0,1,1,process,-,-1,0,0x0,0,0,0,one\n"
      "0,1,1,alloc,device,0,0,0x1000,1,1,0,\n"
      "0,1,1,process,-,-1,0,0x0,0,0,0,two\n"
      "0,1,1,alloc,device,0,0,0x1000,1,1,0,\n"
      "0,1,1,calls,-,-1,0,0x0,0,0,0,1\n");
  EXPECT_THAT(run_report_text(report, record),
              HasSubstr("calls         2 caught in 2 process images of 1 process\n"));
}

TEST(RunReport, SaysWhatWentToTheHostAndWhatThatCost) {
  const RunReport spilling{{"./program"}, 4_MiB, 8_MiB, "exit code 0"};
  const RunRecord record = record_of(
      "0,1,1,alloc,device,0,0,0x1000,3145728,3145728,0,\n"
      "0,1,1,alloc,device,0,0,0x2000,1048576,3145728,0,place=host\n"
      "1024000000000,1,1,free,device,0,0,0x2000,1048576,3145728,0,place=host\n"
      "1024000000000,1,1,refused,device,0,0,0x0,9048576,3145728,0,spill=full\n"
      "1024000000000,1,1,failed,device,0,0,0x0,9048576,3145728,2,spill=failed\n"
      "1024000000000,1,1,not_exported,-,-1,0,0x2000,0,0,1,place=host\n");
  const std::string words =
      "1 allocations of 1.00 MiB (1048576 bytes) went to the host, 25.0 % of the bytes asked of the card; "
      "1.00 MiB (1048576 bytes) at most at one time";
  const std::string cost = "1 GiB s of memory lived across the link, 25.0 % of all that the program held";
  const std::string full = "1 allocation found the host memory of --spill used up, and failed";
  for (const std::string& text : {run_report_text(spilling, record), run_report_html(spilling, record)}) {
    EXPECT_THAT(text, HasSubstr(words));
    EXPECT_THAT(text, HasSubstr(cost));
    EXPECT_THAT(text, HasSubstr(full));
    EXPECT_THAT(text, HasSubstr("for 1 allocation the driver had no host memory"));
    EXPECT_THAT(text, HasSubstr("1 call to share memory with other processes failed"));
  }
  EXPECT_THAT(run_report_text(spilling, two_processes()),
              HasSubstr("spilled       nothing had to go to the host"));
  EXPECT_THAT(run_report_text(report, two_processes()), Not(HasSubstr("spilled")));
}

TEST(RunReport, SaysWhatItDoesNotCover) {
  const RunRecord record = record_of("0,1,1,missed,-,-1,0,0x1,0,0,0,cuMemAlloc\n0,1,1,alloc,dev");
  const std::string text = run_report_text(report, record);
  EXPECT_THAT(text, HasSubstr("cuMemAlloc was asked for at a version newer"));
  EXPECT_THAT(text, HasSubstr("1 line of the record is not readable"));
}

}  // namespace
}  // namespace stowage
