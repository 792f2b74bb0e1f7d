/* The plugin's second file: another user of the one logger. */
#include <simpler/unified_log.h>

#include "plugin.h"

PLUGIN_FUNCTION void plugin_second(int n) { LOG_ERROR("second file %d", n); }
