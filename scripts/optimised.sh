# To be sourced: the packages whose programs run optimised in tests, and their features. A build of some of those programs names
# all of these packages: cargo unites the features of what is named together, and would compile it all again for another set.
optimised=(-p ddssd -p ddss-cli -p ddss-tests -p ddss-apps -p ddss-sim -p ddss-verbs
    --features ddssd/rdma,ddss-cli/rdma,ddss-verbs/rdma)
# Those that run here, and those of the emulated machine.
optimised_here=(--bin ddssd --bin ddss --bin ddss-sim --bin chaos --bin checkpoint --bin dsm_kills)
optimised_there=(--bin ddssd --bin ddss --bin client)
for test in adapter adapter_namespaces adapter_zero_copy adapter_lifecycle adapter_interop adapter_latency machine; do
    optimised_there+=(--test "$test")
done
