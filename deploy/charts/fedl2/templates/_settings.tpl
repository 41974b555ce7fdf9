{{/* The agent's settings: what follows from the other values, under what `settings` says. */}}
{{- define "fedl2.settings" -}}
{{- $backend := dict "kind" "kubernetes" "lease_namespace" .Release.Namespace }}
{{- with .Values.namespaces }}{{ $_ := set $backend "namespaces" . }}{{ end }}
{{- with .Values.ownNodes }}{{ if .selector }}{{ $_ := set $backend "own_nodes" (dict "selector" .selector "reserved" .reserved) }}{{ end }}{{ end }}
{{- if eq .Values.mode "training" }}{{ $_ := set $backend "training" (dict "key_file" "/etc/fedl2-training/key") }}{{ end }}
{{- $telemetry := dict "metrics_host" "0.0.0.0" "metrics_port" 9090 }}
{{- $agent := dict "cluster" .Values.cluster "state_dir" "/var/lib/fedl2" }}
{{- range $section, $stated := .Values.settings }}{{ if $stated }}{{ $_ := set $agent $section (deepCopy $stated) }}{{ end }}{{ end }}
{{- $_ := set $agent "backend" (merge $backend (.Values.settings.backend | default dict)) }}
{{- $_ := set $agent "telemetry" (merge $telemetry (.Values.settings.telemetry | default dict)) }}
{{- with .Values.fleet }}{{ if .address }}
{{- $learner := dict "address" .address }}
{{- with .enrollAddress }}{{ $_ := set $learner "enroll_address" . }}{{ end }}
{{- if .tlsSecret }}
{{- $_ := set $learner "tls" (dict "ca_file" "/etc/fedl2-identity/ca.crt" "certificate_file" "/etc/fedl2-identity/tls.crt" "key_file" "/etc/fedl2-identity/tls.key") }}
{{- else }}
{{- $_ := set $learner "enrollment_file" "/etc/fedl2-identity/enrollment" }}
{{- end }}
{{- $_ := set $agent "learner" $learner }}
{{- end }}{{ end }}
{{- toYaml $agent }}
{{- end }}

{{/* The learner's settings, in the same way. */}}
{{- define "fedl2.learnerSettings" -}}
{{- $learner := dict "state_dir" "/var/lib/fedl2" "initial_policy" "set" "listen" "0.0.0.0:7070" }}
{{- range $section, $stated := .Values.learner.settings }}{{ if $stated }}{{ $_ := set $learner $section (deepCopy $stated) }}{{ end }}{{ end }}
{{- $_ := set $learner "identity" (merge (dict "names" .Values.learner.names) (.Values.learner.settings.identity | default dict)) }}
{{- $_ := set $learner "telemetry" (merge (dict "http_listen" "0.0.0.0:9091") (.Values.learner.settings.telemetry | default dict)) }}
{{- toYaml $learner }}
{{- end }}
