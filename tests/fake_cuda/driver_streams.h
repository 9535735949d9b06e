// The fake driver's streams: handles that do no work, but know whether they are captured.
#pragma once

#include <cuda.h>

namespace fake_cuda {

bool driver_stream_known(CUstream stream);  // the default ones, or one that was created and not destroyed
bool driver_stream_captures(CUstream stream);
// Whether a call that might wait is refused to this thread, since some stream is captured: the capture ends
// then.
bool capture_forbids_waiting();
// Its work has ended, and its events go.
void driver_context_ends(CUcontext context);

}  // namespace fake_cuda
