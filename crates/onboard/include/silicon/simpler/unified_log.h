/* <simpler/unified_log.h> of a build for silicon: the same macros, and the device's log behind them. Such a build
 * searches this folder before the headers of the host's log, and says -DSIMPLER_ONBOARD:
 *
 *     -DSIMPLER_ONBOARD -I .../onboard/include/silicon -I .../onboard/include -I .../log-abi/include
 *
 * so that a source that logs is compiled unchanged for sim and for silicon. Never run on silicon.
 */
#ifndef SIMPLER_ONBOARD
#error "this is the log of a build for silicon: say -DSIMPLER_ONBOARD, or search the host's headers first"
#endif

#include <simpler/device_log.h>
