/* What the plugin's two files share. */
#ifndef PLUGIN_H
#define PLUGIN_H

#ifdef __cplusplus
#define PLUGIN_FUNCTION extern "C" __attribute__((visibility("default")))
#else
#define PLUGIN_FUNCTION __attribute__((visibility("default")))
#endif

#endif
