# To be sourced: the features with which the gate checks and tests the workspace. One set, so that no part of it compiles the
# same crates for another one.
features=(--features ddss-cli/rdma,ddssd/rdma,ddss-client/serde,ddss-client/tracing,ddss-client/futures-io,ddss-client/postcard)
