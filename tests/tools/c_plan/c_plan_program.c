/* A C11 program that uses all of stowage/c_plan.h. Its argument is a trace's file. Ends with 0, or with the line that was
 * wrong. */
#include <stdio.h>
#include <string.h>

#include "stowage/c_plan.h"

#define EXPECT(condition) \
  if (!(condition)) return fprintf(stderr, "line %d: %s; %s\n", __LINE__, #condition, stowage_plan_last_error()), 1

int main(int count, char** arguments) {
  static char trace[1 << 20];
  size_t bytes;
  struct stowage_text* answer = NULL;
  FILE* file;
  EXPECT(count == 2);
  file = fopen(arguments[1], "rb");
  EXPECT(file != NULL);
  bytes = fread(trace, 1, sizeof trace, file);
  fclose(file);
  EXPECT(strstr(stowage_plan_machines(), "rtx4090\n") != NULL);
  EXPECT(strlen(stowage_plan_version()) >= 5);
  stowage_plan_stop(0);
  EXPECT(stowage_plan(trace, bytes, "{\"machine\": \"rtx4090\", \"return\": [\"text\", \"answer\"]}", &answer) == STOWAGE_OK);
  EXPECT(strcmp(answer->name, "text") == 0 && strstr(answer->data, "fits          yes") != NULL);
  EXPECT(strcmp(answer->next->name, "answer") == 0 && answer->next->next == NULL);
  stowage_text_free(answer);
  EXPECT(stowage_plan(trace, bytes, "{}", &answer) == STOWAGE_INVALID_INPUT && answer == NULL);
  EXPECT(strlen(stowage_plan_last_error()) > 0);
  return 0;
}
