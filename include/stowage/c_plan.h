/* The planner for programs that speak C, and for Python's ctypes: what libstowage_plan.so exports. It needs
 * no GPU, and the machine files that come with Stowage are inside it.
 *
 * Units: bytes. Ownership: arguments stay the caller's; an answer is the caller's until stowage_text_free.
 * Errors: no C++ exception leaves a function; those that return int return a stowage_status, and
 * stowage_plan_last_error says why, by thread. Threads: every function may be called from any thread; calls
 * of stowage_plan do not wait for each other. A call takes the processor for as long as the plan takes:
 * seconds for models of some thousand ops.
 */
#pragma once

#include <stddef.h>

#include "stowage/c_status.h"

/* NOLINTBEGIN(readability-identifier-naming): names for C */
#ifdef __cplusplus
extern "C" {
#endif

/* One of the texts that were asked for; behind the last byte stands a 0. */
struct stowage_text {
  const char* name; /* as in the question's "return" */
  const char* data;
  size_t bytes;
  struct stowage_text* next; /* null: it is the last one */
};

/* Plans the step of a trace (docs/trace.md), or of a graph's JSON. `question` is one JSON object of at most
 * 1 MiB, with a 0 behind it. Its members, of which the first or the second is needed:
 * - "machine": the name of a machine that comes with Stowage, such as "rtx4090", or "here": what `stowage
 *   calibrate` measured last, $XDG_CACHE_HOME/stowage/here.json;
 * - "machine_file": the text of a file that `stowage calibrate` wrote;
 * - "device_memory": bytes of the device; left out or null: what the machine has;
 * - "host_memory": bytes of the host; left out or null: 15/16 of what the machine has, if its file says that;
 * - "policy": "auto", or the name of a system to emulate, as `stowage plan --policy`; left out: "auto";
 * - "optimizer_in_backward": true or false; left out: false;
 * - "return": a list of texts: "answer" (the object of `stowage plan --json`, byte for byte), "text" (what
 *   `stowage plan` prints), "report" (its page in HTML), "plan" (the plan as JSON); left out: "answer";
 * - "name": of the step, for messages and the page; left out: "the trace".
 * Unknown members are refused. Sets `answer` to the texts, in the order of "return". That the step does not
 * fit is an answer too: "plan" and "report" are then left out. Else sets it to null. */
int stowage_plan(const char* trace, size_t bytes, const char* question, struct stowage_text** answer);
/* Null: nothing. */
void stowage_text_free(struct stowage_text* text);

/* A flag of the process: while it is not 0, calls of stowage_plan end within a fraction of a second with
 * STOWAGE_STOPPED, those under way and those that begin. */
void stowage_plan_stop(int stop);

/* Of the calling thread's latest call that failed, "" if there is none. Valid until its next call. Never
 * null. */
const char* stowage_plan_last_error(void);
/* "0.1.0" */
const char* stowage_plan_version(void);
/* The names that "machine" takes, one in a line. */
const char* stowage_plan_machines(void);

#ifdef __cplusplus
}
#endif
/* NOLINTEND(readability-identifier-naming) */
