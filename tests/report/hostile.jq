# Puts markup into the texts of a run's document.
"</script></noscript><script>alert(1)</script><img src=x onerror=alert(1)>\"' onload=\"x\" <!--" as $evil
| .nics[0].name = $evil[0:60] | .run_id = $evil | .host.name = $evil | .argv = [$evil] | .command = $evil
| .options = {($evil): $evil, test: $evil} | .errors = [{exit_code: 7, errno: null, reason: null, time: null, text: $evil}]
| .latency[0].nic = "\u202e\u001b[31m<b>"
| .intervals += [{gpu: null, gbps: 1, start_us: 1, duration_us: 1, direction: ("__proto__", "constructor")}]
| .options += {"__proto__": "own", constructor: $evil, "toString": 1, "hasOwnProperty": true}
| .versions += {"__proto__": "own", valueOf: 1}
