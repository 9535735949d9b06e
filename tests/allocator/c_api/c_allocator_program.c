/* A C11 program that uses all of stowage/c_allocator.h, over the fakes. Ends with 0, or with the line that was wrong. */
#include <stdio.h>
#include <string.h>

#include "stowage/c_allocator.h"

#define EXPECT(condition) \
  if (!(condition)) return fprintf(stderr, "line %d: %s; %s\n", __LINE__, #condition, stowage_last_error()), 1

static int everything(void* stream, void* context) {
  (void)stream;
  return *(const int*)context;
}

int main(int count, char** arguments) {
  int yes = 1;
  void* block;
  void* inside;
  const struct stowage_pool pool = {1, 2};
  struct stowage_statistics statistics = {.struct_bytes = sizeof statistics};
  EXPECT(count == 2);
  EXPECT(stowage_set_history(100) == STOWAGE_OK);
  EXPECT(stowage_set_limit(STOWAGE_ALL_DEVICES, STOWAGE_NO_LIMIT) == STOWAGE_OK);
  EXPECT(stowage_begin_iteration(0) == STOWAGE_OK);
  block = stowage_malloc(1000, 0, NULL);
  EXPECT(block != NULL);
  stowage_record_stream(block, NULL);
  EXPECT(stowage_get_statistics(0, &statistics) == STOWAGE_OK);
  EXPECT(statistics.requested == 1000 && statistics.streams == 1);
  EXPECT(statistics.plans == 0 && statistics.plan_hits == 0); /* without STOWAGE_PLAN_PERIODS */
  EXPECT(stowage_pool_begin(0, pool, everything, &yes) == STOWAGE_OK);
  inside = stowage_malloc(1000, 0, NULL);
  EXPECT(inside != NULL);
  stowage_end_allocate_to_pool(0, pool);
  EXPECT(stowage_snapshot(arguments[1]) == STOWAGE_OK);
  stowage_free(inside, 1000, 0, NULL);
  stowage_release_pool(0, pool);
  stowage_free(block, 1000, 0, NULL);
  EXPECT(strcmp(stowage_last_error(), "") == 0);
  stowage_empty_cache();
  EXPECT(stowage_reset_peaks(0) == STOWAGE_OK);
  EXPECT(stowage_get_statistics(0, &statistics) == STOWAGE_OK);
  EXPECT(statistics.reserved == 0 && statistics.peak_reserved == 0);
  EXPECT(stowage_forget_stream(0, NULL) == STOWAGE_OK);
  stowage_set_memory_fraction(2, 0);
  EXPECT(strstr(stowage_last_error(), "memory fraction") != NULL);
  stowage_clear_error();
  EXPECT(strcmp(stowage_last_error(), "") == 0);
  return 0;
}
