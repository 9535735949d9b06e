/* What the functions of stowage's C libraries return. */
#pragma once

/* NOLINTBEGIN(readability-identifier-naming): names for C */
enum stowage_status {
  STOWAGE_OK = 0,
  STOWAGE_INVALID_INPUT = 1, /* an argument, the environment, or there is no such device */
  STOWAGE_OUT_OF_MEMORY = 2,
  STOWAGE_DEVICE_ERROR = 3,
  STOWAGE_AFTER_FORK = 4,
  STOWAGE_FAILED = 5, /* anything else; the text says what */
  STOWAGE_STOPPED = 6 /* by stowage_plan_stop */
};
/* NOLINTEND(readability-identifier-naming) */
