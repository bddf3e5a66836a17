// Looks a topic up with the client that ogen has generated from /v1/openapi.json.
package main

import (
	"context"
	"fmt"
	"os"

	"example.com/lookup/api"
)

type token string

func (t token) Bearer(context.Context, api.OperationName) (api.Bearer, error) {
	return api.Bearer{Token: string(t)}, nil
}

func main() {
	client, err := api.NewClient(os.Args[1], token(""))
	if err != nil {
		panic(err)
	}
	answer, err := client.GetLookupV2TopicDomainTenantNamespaceTopic(context.Background(),
		api.GetLookupV2TopicDomainTenantNamespaceTopicParams{
			Domain: "persistent", Tenant: "acme", Namespace: os.Args[2], Topic: "t",
		})
	switch found := answer.(type) {
	case *api.GetLookupV2TopicDomainTenantNamespaceTopicOKHeaders:
		fmt.Println(found.Response.BrokerUrl.Value)
	default:
		fmt.Printf("%T %v\n", answer, err)
	}
}
