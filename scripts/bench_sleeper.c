// SPDX-License-Identifier: Apache-2.0
//
// A worker that costs next to nothing, so that what is measured is the launcher: leaves its pid in
// $BENCH_FOLDER/LIFE.RANK, by torchrun's names or Open MPI's, and sleeps until it is stopped.
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static const char* variable(const char* name, const char* otherwise) {
  const char* value = getenv(name);
  return value == NULL ? otherwise : value;
}

int main(void) {
  const char* rank = variable("RANK", variable("OMPI_COMM_WORLD_RANK", "none"));
  char path[4096];
  char pid[16];
  snprintf(path, sizeof path, "%s/%s.%s", variable("BENCH_FOLDER", "."),
           variable("TORCHELASTIC_RESTART_COUNT", "0"), rank);
  const int length = snprintf(pid, sizeof pid, "%d\n", (int)getpid());
  const int file = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
  if (file < 0 || write(file, pid, (size_t)length) != length) return 1;
  close(file);
  for (;;)
    pause();
}
